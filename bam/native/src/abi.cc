// Version of the C ABI; bam/native/__init__.py holds the number it expects.
#include <cstdint>

extern "C" uint32_t bam_abi_version() { return 8; }
