# Fails when a traced kernel calls a function that touches memory where no hook sees it:
#   cmake -DOBJDUMP=objdump -DOBJECTS="a.o|b.o" -P no_hidden_accesses.cmake
string(REPLACE "|" ";" objects "${OBJECTS}")
list(LENGTH objects count)
if(count EQUAL 0)
    message(FATAL_ERROR "no objects given")
endif()
foreach(object IN LISTS objects)
    execute_process(COMMAND ${OBJDUMP} -r ${object} OUTPUT_VARIABLE calls
        COMMAND_ERROR_IS_FATAL ANY)
    if(NOT calls MATCHES "__tsan_read")
        message(FATAL_ERROR "${object} is not instrumented")
    endif()
    if(calls MATCHES "[ \t]_?(memcpy|memmove|memset|memcmp|bcmp)[-+@\n]")
        message(FATAL_ERROR "${object} calls ${CMAKE_MATCH_1}, which the tracer does not see")
    endif()
endforeach()
