// One sequence that is being generated: what it has so far, what it asks for, and which version each token came from.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "engine_side/server/adapters/adapter_promotions.h"
#include "engine_side/server/adapters/adapter_registry.h"
#include "layercast/error.h"
#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"

namespace layercast {

struct Sequence;

struct SequenceRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t max_new = 16;
  double temperature = 0;
  double top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop_tokens;              // the sequence ends after one of these, the model's own included
  std::string adapter{};                              // that it is generated with; empty: the base alone
  std::chrono::milliseconds adapter_timeout{60'000};  // how long it waits for the adapter to be in a slot
  std::function<void(const Sequence&)> picked{};      // told of each token, on the generating thread; or none
};

// What a token was computed with. Value.
struct TokenVersion {
  Version base;
  std::optional<Version> adapter{};
  bool operator==(const TokenVersion&) const = default;
};

// Resource; belongs to the generating thread.
struct Sequence {
  std::uint64_t id = 0;
  SequenceRequest request;
  std::vector<std::int32_t> tokens;  // those generated so far
  std::vector<double> logprobs;
  AdapterLease adapter{};                  // held from its first step on
  std::shared_ptr<AwaitedSlot> awaited{};  // while it waits for its adapter, with others
  std::optional<Deadline> wait_ends{};     // since it began to wait for it
  std::vector<TokenVersion> versions;      // one for each of `tokens`
  std::size_t cached = 0;                  // how many of prompt and tokens the ranks' KV caches hold
  std::optional<Error> error;              // why no token could be picked; set before `done` is told "failed"
  std::function<void(const Sequence&, const char* finish)> done;
  std::stop_token abandoned;  // stops once nobody waits for the answer any more

  // How it has ended: "stop" with one of the request's stop tokens, also if that is the last one it may have, or else
  // "length". Null: it goes on.
  const char* Finish() const;
  // The tokens that the ranks must still compute to give the next one.
  std::vector<std::int32_t> NextTokens() const;
  // The answer: {"tokens", "logprobs", "finish", "spans"}, without "logprobs" unless they are wanted.
  Json ToJson(const char* finish, bool logprobs) const;
};

}  // namespace layercast
