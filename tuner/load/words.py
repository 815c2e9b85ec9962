"""Words that common tokenizers have as one token each, with the space before them."""

_TEXT = """
about above accept across action active address after again against agent alone along already also
always among amount animal another answer appear area argue around article artist assume author
away back balance bank base battle beat become before begin behind believe benefit best better
between beyond bill black blood blue board body book both bottom box break bring brother budget
build business call camera campaign cancer candidate capital card care career carry case catch
cause cell center central century certain chair challenge chance change character charge check
child choice church citizen city civil claim class clear close coach cold collection college color
come common community company compare computer concern condition conference consider consumer
contain continue control cost could country couple course court cover create crime culture current
customer dark data daughter day dead deal death debate decade decide decision deep defense degree
describe design despite detail develop difference different difficult dinner direction director
discover discuss disease door down draw dream drive drop drug during each early east easy economy
edge education effect effort eight either election else employee end energy enjoy enough enter
entire environment especially establish even evening event ever every evidence exactly example
executive exist expect experience expert explain eye face fact factor fail fall family far fast
father fear federal feel field fight figure fill film final finally financial find fine finger
finish fire firm first fish five floor focus follow food foot force foreign forget form former
forward four free friend from front full fund future game garden gas general generation girl give
glass goal good government great green ground group grow growth guess hair half hand hang happen
happy hard have head health hear heart heat heavy help here high history hold home hope hospital
hotel hour house huge human hundred husband idea identify image imagine impact important improve
include increase indeed indicate individual industry information inside instead institution
interest international interview investment
"""

WORDS = tuple(_TEXT.split())
"""Common English; what a server makes of them is asked of it before they are used."""
