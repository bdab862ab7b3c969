// A `generate` call that was made for somebody who asks over HTTP: what has come of it so far.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>

#include "engine_side/server/generate/generate_call.h"
#include "engine_side/server/http/completion_answer.h"
#include "src/control/rpc.h"
#include "src/net/wake_up.h"

namespace layercast {

// Resource; thread-safe. The call and whoever waits for it own it together.
class PendingCompletion : public std::enable_shared_from_this<PendingCompletion> {
 public:
  // The other ends of it, for the call.
  RpcReply Reply();
  SequenceNews News();

  // Rings when there is something to take.
  const WakeUp& rung() const { return rung_; }
  // The tokens that have come since, of one choice after another; nothing for now.
  std::optional<PickedTokens> TakeTokens();
  // {"result"} or {"error"}; nothing: it goes on.
  std::optional<Json> Answer() const;
  // Nobody waits for it any more: its sequences end.
  void GiveUp() { given_up_.request_stop(); }

 private:
  void Note(std::size_t choice, const Sequence& sequence, const char* finish);

  std::stop_source given_up_;
  const WakeUp rung_;
  mutable std::mutex mutex_;
  std::deque<PickedTokens> picked_;  // guarded by mutex_, like the answer
  std::optional<Json> answer_;
};

}  // namespace layercast
