#define GRADUS_ISA avx512
#include <gradus/backends/openmp/kernel_table.h>
