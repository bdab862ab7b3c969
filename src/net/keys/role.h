// What a key may do: the roles that a list of clients gives to keys, and which of them each request needs. Used by the
// lists and by servers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/error.h"

namespace layercast {

// The code of the error that says that a key is not known, or has not the role for what was asked.
inline constexpr ErrorCode kDenied = ErrorCode::kPermissionDenied;

enum class Role : std::uint8_t { kRead, kGenerate, kReload, kPublish };

inline constexpr std::array<Role, 4> kAllRoles = {Role::kRead, Role::kGenerate, Role::kReload, Role::kPublish};

std::string_view RoleName(Role role);  // "read"
std::optional<Role> RoleNamed(std::string_view name);

// Value.
class Roles {
 public:
  static Roles All();
  void Add(Role role) { bits_ |= Bit(role); }
  bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  std::string Text() const;  // "read,reload"
  bool operator==(const Roles&) const = default;

 private:
  static unsigned Bit(Role role) { return 1U << static_cast<unsigned>(role); }
  unsigned bits_ = 0;
};

// The role that a request needs: a method of an engine's RPC, a message of a session by its name, or what is asked on a
// data channel ("chunks"). Empty for a request that the table does not have: no key may ask for that.
std::optional<Role> RoleFor(std::string_view request);

}  // namespace layercast
