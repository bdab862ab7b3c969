#include "python/native/waits.h"

#include <unistd.h>

#include <atomic>

namespace layercast::python {
namespace {

std::atomic<int> returning{0};  // threads that wait for the GIL, and then have it
std::atomic<bool> ending{false};
std::atomic<std::thread::id> last;  // the thread that ends the interpreter

}  // namespace

void BeginToReturn() {
  ++returning;
  if (!ending || std::this_thread::get_id() == last.load()) return;
  HasReturned();
  while (true) ::pause();
}

void HasReturned() {
  --returning;
  returning.notify_one();
}

void EndOfPython() {
  last = std::this_thread::get_id();
  ending = true;
  PyThreadState* state = PyEval_SaveThread();
  while (const int left = returning) returning.wait(left);
  PyEval_RestoreThread(state);
}

}  // namespace layercast::python
