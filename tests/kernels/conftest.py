from tests.kernels.interpreter import make_rows_alone

make_rows_alone()
