/* Debian 13 does not install this header, which ompi/op/op.h includes for functions that are not called here. */
#define OMPI_INT_2_FINT(number) (number)
