// What AddressSanitizer asks the program for; nothing calls these in other builds.
//
// gcc's Objective-C run time notes each class when a library is loaded and never frees the notes.
// They are told from objects that leak by whole stacks, which the fast unwinder cannot give through
// that library.
extern "C" {
[[gnu::visibility("default")]] const char* __asan_default_options();
[[gnu::visibility("default")]] const char* __lsan_default_suppressions();

const char* __asan_default_options() { return "fast_unwind_on_malloc=0"; }
const char* __lsan_default_suppressions() { return "leak:__objc_exec_class\n"; }
}
