#define GRADUS_ISA avx2
#include <gradus/backends/openmp/kernel_table.h>
