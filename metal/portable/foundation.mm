// The root class and the two Foundation classes that Metal's signatures need.
//
// gcc's runtime has no root class with reference counts, no strings and no pools; these are the
// smallest ones that let the same calling code run against Apple's.
#import <Metal/Metal.h>
#include <objc/runtime.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {

// One stack of autoreleased objects per thread; a pool is an index into it.
std::vector<id>& autoreleased() {
    thread_local std::vector<id> objects;
    return objects;
}

}  // namespace

void* objc_autoreleasePoolPush(void) { return reinterpret_cast<void*>(autoreleased().size()); }

void objc_autoreleasePoolPop(void* pool) {
    std::vector<id>& objects = autoreleased();
    const size_t depth = reinterpret_cast<size_t>(pool);
    // A release may autorelease in turn, so the end is looked up each time.
    while (objects.size() > depth) {
        id object = objects.back();
        objects.pop_back();
        [(id<NSObject>)object release];
    }
}

@implementation MuserObject
+ (id)alloc {
    MuserObject* object = class_createInstance((Class)self, 0);
    if (object == nil) throw std::bad_alloc();
    object->references_ = 1;
    return object;
}
- (id)init {
    return self;
}
- (void)dealloc {
    object_dispose(self);
}
- (id)retain {
    __atomic_fetch_add(&references_, 1, __ATOMIC_RELAXED);
    return self;
}
- (oneway void)release {
    if (__atomic_fetch_sub(&references_, 1, __ATOMIC_ACQ_REL) == 1) [self dealloc];
}
- (id)autorelease {
    autoreleased().push_back(self);
    return self;
}
@end

@implementation NSString
- (id)initWithUTF8String:(const char*)text {
    text_ = strdup(text);
    if (text_ == nullptr) throw std::bad_alloc();
    return self;
}
- (const char*)UTF8String {
    return text_;
}
- (void)dealloc {
    free(text_);
    [super dealloc];
}
@end

@implementation NSError
- (id)initWithCode:(NSInteger)code text:(const char*)text {
    code_ = code;
    description_ = [[NSString alloc] initWithUTF8String:text];
    return self;
}
- (NSInteger)code {
    return code_;
}
- (NSString*)localizedDescription {
    return description_;
}
- (void)dealloc {
    [description_ release];
    [super dealloc];
}
@end
