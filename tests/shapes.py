"""The type checker that the suite puts round every function of the package: shapes and types, at run time."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number will do where a number is asked for
