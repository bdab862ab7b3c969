// Who may ask what over HTTP, decided by the head of a request, before its body is read.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "src/base/hash/sha256.h"
#include "src/net/http/http_answer.h"

namespace layercast {

// Of a request. Value.
struct HttpHead {
  std::string method{};
  std::string path{};
  std::string host{};
  std::string authorization{};
  std::string content_type{};
  std::string content_encoding{};
  std::string content_length{};
};

// Value.
struct HttpRules {
  // The hash of the bearer key that whoever asks must have; none: nobody is asked for one.
  std::optional<Hash> key{};
  // True: what is bound is reached from this host alone, and nobody is asked for a key. Then a page of another site,
  // in a browser of this host, must not pass for somebody of this host: `Host` must be this host.
  bool local = false;
  std::vector<std::string> open_paths{};  // for which no key is needed
  std::size_t most_body_bytes = 0;
};

// The answer to who may not ask this; nothing: they may.
std::optional<HttpAnswer> RefusalOf(const HttpHead& head, const HttpRules& rules);
// What a bearer key is compared by: in the same time wherever keys differ, and a copy of it tells nobody the key.
Hash HttpKeyHash(const std::string& key);

}  // namespace layercast
