// Holds on the places in which an engine has its adapters, each given back by itself: a sequence's lease, a place that
// is being filled, and a move from one place to another. AdapterRegistry gives them out, and outlives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "layercast/version.h"
#include "src/control/json_forms.h"

namespace layercast {

class AdapterRegistry;

// An adapter's version in its place. Value.
struct SlottedAdapter {
  std::string name;
  Version version{};
  std::optional<Version> base{};  // the version that it was trained on, if it says so
  Json about = Json::object();    // what its load reported, for lists
};

// A hold on an adapter, whose place is not written while anyone has one. Resource; move-only.
class AdapterLease {
 public:
  AdapterLease() = default;  // of no adapter: the base
  AdapterLease(AdapterRegistry& registry, std::size_t place, std::string name, Version version)
      : registry_(&registry), place_(place), name_(std::move(name)), version_(std::move(version)) {}
  AdapterLease(AdapterLease&& other) noexcept { *this = std::move(other); }
  AdapterLease& operator=(AdapterLease&& other) noexcept;
  ~AdapterLease() { GiveBack(); }

  explicit operator bool() const { return registry_ != nullptr; }
  // By which ranks know it; -1: the base.
  std::int32_t slot() const { return registry_ == nullptr ? -1 : static_cast<std::int32_t>(place_); }
  const std::string& name() const { return name_; }
  const Version& version() const { return version_; }

 private:
  void GiveBack() noexcept;

  AdapterRegistry* registry_ = nullptr;
  std::size_t place_ = 0;
  std::string name_;
  Version version_;
};

// A place without a name, that is nobody's to read, and is free again unless it gets one (AdapterRegistry::Name).
// Resource; move-only.
class AdapterFill {
 public:
  AdapterFill() = default;  // of no place
  AdapterFill(AdapterRegistry& registry, std::size_t place) : registry_(&registry), place_(place) {}
  AdapterFill(AdapterFill&& other) noexcept { *this = std::move(other); }
  AdapterFill& operator=(AdapterFill&& other) noexcept;
  ~AdapterFill() { GiveBack(); }

  explicit operator bool() const { return registry_ != nullptr; }
  std::size_t place() const { return place_; }

 private:
  friend class AdapterRegistry;
  void GiveBack() noexcept;

  AdapterRegistry* registry_ = nullptr;
  std::size_t place_ = 0;
};

// An adapter that is being copied to another place. It stays where it is unless the registry is told that it has
// arrived. Resource; move-only.
class AdapterMove {
 public:
  AdapterMove(AdapterRegistry& registry, std::size_t from, AdapterFill to, SlottedAdapter adapter)
      : registry_(&registry), from_(from), to_(std::move(to)), adapter_(std::move(adapter)) {}
  AdapterMove(AdapterMove&& other) noexcept
      : registry_(std::exchange(other.registry_, nullptr)),
        from_(other.from_),
        to_(std::move(other.to_)),
        adapter_(std::move(other.adapter_)) {}
  AdapterMove& operator=(AdapterMove&&) = delete;
  ~AdapterMove();

  std::size_t from() const { return from_; }
  std::size_t to() const { return to_.place(); }
  const SlottedAdapter& adapter() const { return adapter_; }

 private:
  friend class AdapterRegistry;

  AdapterRegistry* registry_;
  std::size_t from_;
  AdapterFill to_;
  SlottedAdapter adapter_;
};

}  // namespace layercast
