// Included before every Objective-C++ source that clang compiles against gcc's runtime. clang takes
// the runtime's personality there, which is C's: no typed catch would ever match a C++ exception.
// The sources throw C++ exceptions only, so they get C++'s.
asm(".set __gnu_objc_personality_v0, __gxx_personality_v0");
