# How every source file of this project is compiled. The flags are folder-wide, so that no target can
# miss them; the target `muser_flags` brings the include folders and threads. Includes are written
# from cpp/ ("contract/norm.h", "errors.h") or from the top ("metal/engine.h").
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
add_compile_options($<$<COMPILE_LANGUAGE:OBJCXX>:-std=c++20>)  # CMake knows it for C++ only
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
foreach(language CXX OBJCXX)
    set(CMAKE_${language}_VISIBILITY_PRESET hidden)
endforeach()
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

find_package(Threads REQUIRED)
add_library(muser_flags INTERFACE)
target_link_libraries(muser_flags INTERFACE Threads::Threads)
target_include_directories(muser_flags INTERFACE ${PROJECT_SOURCE_DIR}/cpp ${PROJECT_SOURCE_DIR})

add_compile_options(-Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wpedantic>)
# gcc 12 and 13 see overlapping copies in "text" + std::to_string(n) that are not there (PR 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-restrict)
endif()
if(MUSER_WERROR)
    add_compile_options(-Werror)
endif()
# The contract's arithmetic: only a written fma is fused. Without errno a square root is one
# instruction; with it gcc adds a call into libm for negative arguments.
add_compile_options(-ffp-contract=off -fno-math-errno)
# The baseline of x86 wheels. Files for one instruction set add their own flags where they are built.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_compile_options(-march=x86-64-v2)
endif()

if(MUSER_SANITIZE)
    set(sanitize -fsanitize=${MUSER_SANITIZE} -fno-sanitize-recover=all)
    add_compile_options(${sanitize} -fno-omit-frame-pointer -g)
    add_link_options(${sanitize})
endif()
