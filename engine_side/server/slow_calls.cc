#include "engine_side/server/slow_calls.h"

#include <exception>
#include <optional>

#include "layercast/error.h"
#include "src/base/threads/thread_name.h"

namespace layercast {

void SlowCalls::Add(Call call) {
  if (calls_.Push(std::move(call), Deadline::After(std::chrono::milliseconds(0)))) return;
  if (calls_.closed()) throw Error(ErrorCode::kCancelled, "the engine was ended");
  throw Error(ErrorCode::kResourceExhausted, "too many calls wait for this engine");
}

void SlowCalls::End() {
  calls_.Close();
  if (thread_.joinable()) thread_.join();
}

void SlowCalls::Work() {
  NameThisThread("lc-reload");
  while (true) {
    const std::optional<Call> call = calls_.Pop(chores_.due());
    if (!call && calls_.closed()) return;
    if (call) Make(*call);
    chores_.between();
  }
}

void SlowCalls::Make(const Call& call) const {
  try {
    if (!call.lasting && call.reply.abandoned().stop_requested()) {
      throw Error(ErrorCode::kCancelled, "the call was given up before its turn came");
    }
    chores_.before();
    call.run();
  } catch (const std::exception& error) {  // fails the call, not the engine
    call.reply.Failure(ErrorOfCall(error));
  }
}

}  // namespace layercast
