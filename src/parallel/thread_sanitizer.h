#ifndef TTR_SRC_PARALLEL_THREAD_SANITIZER_H_
#define TTR_SRC_PARALLEL_THREAD_SANITIZER_H_

// oneTBB as systems ship it is not compiled for the thread sanitizer, which therefore sees none of
// its waiting and would call every result handed from one loop to the next a race. The preset tsan
// leaves this room uninstrumented and lets it say instead what oneTBB guarantees; races between the
// tasks of one loop are still found.

#ifdef TTR_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace ttr {

// An event that Reach() puts before whatever follows Await().
class SanitizerEvent {
 public:
#ifdef TTR_THREAD_SANITIZER
  void Reach() { __tsan_release(&place_); }
  void Await() { __tsan_acquire(&place_); }

 private:
  char place_ = 0;
#else
  void Reach() {}
  void Await() {}
#endif
};

}  // namespace ttr

#endif  // TTR_SRC_PARALLEL_THREAD_SANITIZER_H_
