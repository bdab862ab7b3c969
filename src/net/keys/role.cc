#include "src/net/keys/role.h"

#include <algorithm>
#include <iterator>

namespace layercast {
namespace {

struct Row {
  std::string_view request;
  Role role;
};

// The one statement of which request needs which role. A method or message that is added and has no row here is refused
// to every key.
constexpr Row kTable[] = {
    // engines (RPC.md)
    {"status", Role::kRead},
    {"list_adapters", Role::kRead},
    {"digests", Role::kRead},
    {"lend_weights", Role::kRead},
    {"generate", Role::kGenerate},
    {"wait_for_version", Role::kGenerate},
    {"reload_weights", Role::kReload},
    {"stage_weights", Role::kReload},
    {"hold_weights", Role::kReload},
    {"prepare_weights", Role::kReload},
    {"commit_weights", Role::kReload},
    {"abort_weights", Role::kReload},
    {"promote_weights", Role::kReload},
    {"revoke_weights", Role::kReload},
    {"hold_trial", Role::kReload},
    {"init_weight_transfer_engine", Role::kReload},
    {"start_weight_update", Role::kReload},
    {"update_weights", Role::kReload},
    {"finish_weight_update", Role::kReload},
    {"pause", Role::kReload},
    {"resume", Role::kReload},
    {"sleep", Role::kReload},
    {"wake_up", Role::kReload},
    {"load_adapter", Role::kReload},
    {"unload_adapter", Role::kReload},
    {"pin_adapter", Role::kReload},
    {"export", Role::kReload},
    {"verify", Role::kReload},
    // publishers, relays and lenders: what receivers say (src/wire/FORMAT.md)
    {"hello", Role::kRead},
    {"subscribe", Role::kRead},
    {"ask_signed", Role::kRead},
    {"ask_delta", Role::kRead},
    {"tensor_done", Role::kRead},
    {"ping", Role::kRead},
    {"bye", Role::kRead},
    {"status_request", Role::kRead},
    {"relay_lost", Role::kRead},
    {"progress", Role::kRead},
    {"cost_request", Role::kRead},
    {"versions", Role::kRead},
    {"pin_version", Role::kPublish},
    {"evict_version", Role::kPublish},
    {"publish_folder", Role::kPublish},
    {"offered_since", Role::kRead},
    {"hold_version", Role::kReload},
    {"session_trace", Role::kRead},
    // the zmq channel
    {"chunks", Role::kRead},
};

}  // namespace

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kRead: return "read";
    case Role::kGenerate: return "generate";
    case Role::kReload: return "reload";
    case Role::kPublish: return "publish";
  }
  return "read";
}

std::optional<Role> RoleNamed(std::string_view name) {
  const auto* const found = std::ranges::find(kAllRoles, name, RoleName);
  return found == kAllRoles.end() ? std::nullopt : std::optional(*found);
}

Roles Roles::All() {
  Roles all;
  for (const Role role : kAllRoles) all.Add(role);
  return all;
}

std::string Roles::Text() const {
  std::string text;
  for (const Role role : kAllRoles) {
    if (Has(role)) text += (text.empty() ? "" : ",") + std::string(RoleName(role));
  }
  return text;
}

std::optional<Role> RoleFor(std::string_view request) {
  const auto* const row = std::ranges::find(kTable, request, &Row::request);
  return row == std::end(kTable) ? std::nullopt : std::optional(row->role);
}

}  // namespace layercast
