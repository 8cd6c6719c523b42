# muser_add_tests(<component> SOURCES a.cpp ... LIBRARIES muser_contract ...)
#
# One googletest binary, muser_<component>_tests, known to ctest test by test. Tests with "Sweep" in
# their name get the label `sweep`; `ctest -LE sweep` leaves them out.
if(NOT MUSER_TESTS)
    return()
endif()

find_package(GTest QUIET)
if(NOT GTest_FOUND)
    message(FATAL_ERROR "googletest was not found. Debian and Ubuntu: apt install libgtest-dev")
endif()
include(GoogleTest)
enable_testing()

function(muser_add_tests component)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
    set(target muser_${component}_tests)
    add_executable(${target} ${arg_SOURCES})
    target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} muser_flags GTest::gtest_main)
    gtest_discover_tests(${target}
        TEST_PREFIX "${component}." TEST_FILTER "-*Sweep*"
        PROPERTIES LABELS ${component}
        DISCOVERY_TIMEOUT 60)
    gtest_discover_tests(${target}
        TEST_PREFIX "${component}.sweep." TEST_FILTER "*Sweep*"
        PROPERTIES LABELS sweep  # alone: discovery keeps the first label of a list only
        DISCOVERY_TIMEOUT 60)
endfunction()
