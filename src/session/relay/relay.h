// The relaying half of a receiver: serves what a session takes to other receivers, while it is taken and until the next
// session begins. A rank that relays has one for its base, and one for each slot of adapters. Sessions fill it
// (FetchOptions::relay), and the publisher sends other receivers to it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/failpoint.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/link/relayed_chunks.h"
#include "src/session/offer/offer_service.h"
#include "src/session/relay_tree/relay_tree.h"
#include "src/wire/schedule.h"

namespace layercast {

struct RelayOptions {
  std::string endpoint;                          // other receivers are told it as it stands; port 0 picks a free one
  Keys keys{};                                   // OfferServiceOptions::keys
  std::vector<std::string> channels{};           // those that are offered; empty: all that work here, but inproc
  std::chrono::milliseconds peer_timeout{5000};  // OfferServiceOptions::peer_timeout
  TakerTally* takers = nullptr;                  // OfferServiceOptions::takers
};

// Resource; one thread only, that of the session. It takes the memory of the chunks of one session's schedules, and
// twice that while somebody still reads those of the session before.
class Relay {
 public:
  // Throws what OfferService throws, and kInvalidArgument for an endpoint that stands for all addresses of the host.
  Relay(const RelayOptions& options, WorkerPool& pool, FailPoints& failpoints);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Another relay at the same endpoint, for other sessions: it keeps what it has when those of this one go on. It is
  // for the same thread.
  std::unique_ptr<Relay> Beside() const;
  std::string endpoint() const { return point_->service.endpoint(); }

  // Stops serving what was served until now. Receivers that still take it are refused with `why`, and their sessions
  // end: whoever stays all the same does not keep the chunks.
  void Clear(const Error& why);
  // The chunks of a schedule that a session begins to take. They are served until Clear.
  struct Served {
    RelayedChunks* chunks = nullptr;
    RelayPlace place;
  };
  // Throws kResourceExhausted.
  Served Serve(const Schedule& schedule);

 private:
  struct Held {
    std::shared_ptr<RelayedChunks> chunks;    // the second owner is the version
    std::shared_ptr<OfferedVersion> version;  // the second owner is the service
  };
  struct Point {
    Point(const RelayOptions& options, WorkerPool& pool, FailPoints& failpoints);
    ~Point() { service.Stop(); }  // before the memory that it offers is freed
    Point(const Point&) = delete;
    Point& operator=(const Point&) = delete;
    void FreeReleased();

    OfferService service;
    std::vector<Held> retiring;  // somebody may still read them
  };
  explicit Relay(std::shared_ptr<Point> point) : point_(std::move(point)) {}

  const std::shared_ptr<Point> point_;  // the other owners are the relays beside this one
  std::vector<Held> served_;
};

}  // namespace layercast
