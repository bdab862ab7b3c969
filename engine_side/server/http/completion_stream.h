// Waits for a completion, and answers it: as a whole, or token after token as server-sent events. Used by the door.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "engine_side/server/http/completion_answer.h"
#include "engine_side/server/http/completion_request.h"
#include "engine_side/server/http/pending_completion.h"
#include "src/net/http/http_answer.h"

namespace layercast {

// Resource; one thread only. If the client goes, or this goes, the completion is given up.
class CompletionStream {
 public:
  // `seat` is held until this goes.
  CompletionStream(const CompletionRequest& request, std::shared_ptr<PendingCompletion> pending,
                   const HttpConnection& client, std::shared_ptr<void> seat);
  ~CompletionStream() { pending_->GiveUp(); }
  CompletionStream(const CompletionStream&) = delete;
  CompletionStream& operator=(const CompletionStream&) = delete;

  // Both throw the error that the call was answered with before its first token; kCancelled if nobody waits any more.
  HttpAnswer Whole();
  // `stream` owns itself in what the answer goes on with.
  static HttpAnswer InPieces(const std::shared_ptr<CompletionStream>& stream);

 private:
  std::optional<std::string> Next();
  bool AwaitNews();
  void NoteEnd(const Json& answer);

  const CompletionAnswer form_;
  const bool usage_wanted_;
  const std::shared_ptr<PendingCompletion> pending_;
  const HttpConnection& client_;
  const std::shared_ptr<void> seat_;
  std::deque<std::string> events_;  // to be sent
  std::size_t tokens_ = 0;          // sent so far
  bool ended_ = false;              // the last event is among them
};

}  // namespace layercast
