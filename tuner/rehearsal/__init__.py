"""The rehearsal engine: a process that takes SGLang's command line, speaks its HTTP, and behaves
as a surface file says. Nothing measured against it is a benchmark."""
