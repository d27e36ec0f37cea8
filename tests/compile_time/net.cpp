// The translation unit whose compile time is measured: the umbrella header and a small net.
#include <gradus/gradus.h>

int main() { return 0; }
