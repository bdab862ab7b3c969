// A controller's connections to its engines, which are kept from call to call: a connection costs more than a small
// version. Used by the controller, and by its reloads of several engines together.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/deadline.h"
#include "src/control/rpc.h"
#include "src/net/keys/keys.h"

namespace layercast {

// Resource. Threads may use the clients of different engines at the same time.
class EngineClients {
 public:
  // A client that nobody has used for so long makes way for a new one: its engine's host may have vanished meanwhile.
  static constexpr std::chrono::seconds kKeptFor{60};

  EngineClients(std::vector<std::string> endpoints, Keys keys)
      : endpoints_(std::move(endpoints)), keys_(std::move(keys)), clients_(endpoints_.size()) {}

  const std::vector<std::string>& endpoints() const { return endpoints_; }

  // Returns what `call` does with the engine's client. After an error the client goes, and the next call has a new one;
  // likewise after a connection was lost.
  template <class Call>
  auto Use(std::size_t engine, const Call& call) {
    Kept& kept = clients_[engine];
    if (kept.client != nullptr && (kept.until.Passed() || kept.client->WasLost())) kept.client.reset();
    if (kept.client == nullptr) kept.client = std::make_unique<RpcClient>("engine", endpoints_[engine], keys_);
    try {
      auto answer = call(*kept.client);
      kept.until = Deadline::After(kKeptFor);
      return answer;
    } catch (...) {
      Drop(engine);
      throw;
    }
  }
  void Drop(std::size_t engine) { clients_[engine].client.reset(); }

 private:
  struct Kept {
    std::unique_ptr<RpcClient> client;  // null: there is none yet
    Deadline until = Deadline::After(kKeptFor);
  };
  const std::vector<std::string> endpoints_;
  const Keys keys_;
  std::vector<Kept> clients_;  // by engine
};

}  // namespace layercast
