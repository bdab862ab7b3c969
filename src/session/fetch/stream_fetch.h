// The walk over a stream, or over those of several publishers at once. It takes tensors when their publisher comes to
// them: the chunks of them that the schedule wants, which are asked for as soon as they can be had. Used by the
// fetching half of a session.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/session/fetch/chunk_fetch.h"
#include "src/session/fetch/shared_schedule.h"

namespace layercast {

// Resource; one thread only.
class StreamFetch {
 public:
  // `chunks` has one for each publisher. No chunk of the schedule may hold regions of two tensors.
  StreamFetch(std::span<const std::unique_ptr<ChunkFetch>> chunks, const SharedSchedule& schedule, FetchSink& sink);
  ~StreamFetch();
  StreamFetch(const StreamFetch&) = delete;
  StreamFetch& operator=(const StreamFetch&) = delete;

  // Of what has come, the tensor of the publisher that is furthest behind is taken first. No publisher is kept waiting
  // for another, since its trainer would wait too.
  void Run();

 private:
  class Part;
  bool TakeWhatCame();
  void AwaitMore();
  // Checks that every publisher is there, those that have ended too, while one is waited for.
  void LookAtLinks(const std::string& stage);

  const SharedSchedule& schedule_;
  FetchSink& sink_;
  std::vector<std::unique_ptr<Part>> parts_;  // by publisher
  std::vector<Part*> open_;                   // those that have not ended
};

}  // namespace layercast
