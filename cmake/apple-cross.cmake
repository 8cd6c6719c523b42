# Toolchain file of scripts/check_apple: clang and lld on Linux, a macOS SDK folder, arm64 macOS 12.
# The C++ library's headers come from the same clang: an SDK of that age ships an older libc++ than
# the Xcode that people build with. The symbols are still those of the SDK's own libc++.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_OSX_SYSROOT ${MUSER_APPLE_SDK} CACHE PATH "macOS SDK")
set(CMAKE_OSX_ARCHITECTURES arm64 CACHE STRING "")
set(CMAKE_OSX_DEPLOYMENT_TARGET 12.0 CACHE STRING "")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MUSER_APPLE_SDK)

find_program(clang_cxx NAMES clang++ REQUIRED)
execute_process(
    COMMAND ${clang_cxx} -print-resource-dir
    OUTPUT_VARIABLE resource_folder OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX REPLACE "/lib/clang/[^/]*$" "" llvm ${resource_folder})
foreach(language CXX OBJCXX)
    set(CMAKE_${language}_COMPILER ${clang_cxx})
    set(CMAKE_${language}_COMPILER_TARGET arm64-apple-macos12)
    set(CMAKE_${language}_FLAGS_INIT "-nostdinc++ -isystem ${llvm}/include/c++/v1")
endforeach()
foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT "-fuse-ld=lld -stdlib=libc++ -Wno-unused-command-line-argument")
endforeach()
set(CMAKE_AR ${llvm}/bin/llvm-ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${llvm}/bin/llvm-ranlib CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL ${llvm}/bin/llvm-install-name-tool CACHE FILEPATH "")

set(CMAKE_FIND_ROOT_PATH ${MUSER_APPLE_SDK})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
