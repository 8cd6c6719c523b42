# Toolchain file: aarch64 Linux from another machine, with Debian's cross compilers
# (apt install g++-aarch64-linux-gnu gobjc++-aarch64-linux-gnu). Programs run under qemu-user:
#   cmake -B build/aarch64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-cross.cmake -DMUSER_TOOLS=ON
#   qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/cpp/tools/muser_hash ...
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_program(aarch64_cxx aarch64-linux-gnu-g++ REQUIRED)
set(CMAKE_CXX_COMPILER ${aarch64_cxx})
set(CMAKE_OBJCXX_COMPILER ${aarch64_cxx})
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
