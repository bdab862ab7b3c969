// By which keys a process shows who it is, and knows whom it talks to and who may talk to it. Given to publishers,
// receivers and controllers. docs/security.md says what that protects, and what not.
#pragma once

#include <string>

namespace layercast {

// Value. If it names nothing and does not say `insecure`, the environment variables LAYERCAST_KEYS and LAYERCAST_SECRET
// stand for `folder` and `secret`. If they name nothing either, peers are not authenticated.
struct KeyOptions {
  // A folder that `layercast keygen` made.
  std::string folder{};
  // Instead of it, a file that `layercast keygen --secret` made. Every process of a job has the same, and whoever has
  // it may do everything.
  std::string secret{};
  // True: no keys at all, and yet an address beyond loopback may be bound. Whoever reaches it may do everything.
  bool insecure = false;

  // Beside those, keys that say whose weights are served, whoever brings them; each where the environment may name it
  // too. Of a publisher: a file that `layercast keygen --sign` made, by which versions are signed; LAYERCAST_SIGN.
  std::string sign{};
  // Of who takes versions: a list of such files' public halves. A version that none of them signed is refused;
  // LAYERCAST_TRUST.
  std::string trust{};
  // True: takes weights nevertheless from where nobody signs them: from paths and from other engines.
  bool allow_unsigned = false;
};

}  // namespace layercast
