#include "src/net/token.h"

#include <sys/random.h>

#include "layercast/error.h"

namespace layercast {

Token RandomToken() {
  Token token;
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw Error(ErrorCode::kResourceExhausted, "no random bytes");
  }
  return token;
}

bool SameToken(const Token& a, const Token& b) {
  std::byte difference{};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

}  // namespace layercast
