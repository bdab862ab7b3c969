// A connection's failure is final: the first error is kept and thrown again by every later call. Part of each
// FetchingEnd. One thread only.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "layercast/error.h"

namespace layercast {

class ConnectionGuard {
 public:
  // `peer` opens every message: "zmq: publisher at tcp://127.0.0.1:4711".
  explicit ConnectionGuard(std::string peer) : peer_(std::move(peer)) {}

  // Runs `step`, or throws the connection's failure if it has failed before. An error that `step` throws becomes the
  // connection's failure.
  template <typename Step>
  auto Run(const Step& step) {
    if (failure_) throw Error(*failure_);
    try {
      return step();
    } catch (const Error& error) {
      failure_.emplace(error.code(), peer_ + ": " + error.what());
      throw Error(*failure_);
    }
  }
  void Close() {
    if (!failure_) failure_.emplace(ErrorCode::kFailedPrecondition, peer_ + ": the connection is closed");
  }
  const std::string& peer() const { return peer_; }

 private:
  std::string peer_;
  std::optional<Error> failure_;
};

}  // namespace layercast
