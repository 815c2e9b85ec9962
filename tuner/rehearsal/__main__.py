"""`python -m tuner.rehearsal --surface FILE <flags of SGLang>`."""

import sys

from tuner.rehearsal.launch import main

sys.exit(main(sys.argv[1:]))
