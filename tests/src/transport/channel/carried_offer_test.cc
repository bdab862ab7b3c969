// One offer on several channels: on all of them or on none, and on none once it goes.
#include "src/transport/channel/carried_offer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

// Refuses the offer `refused`.
class CountedEnd : public OfferingEnd {
 public:
  explicit CountedEnd(std::uint64_t refused = 0) : refused_(refused) {}
  std::string address() const override { return "nowhere"; }
  void Add(const Offer& offer) override {
    if (offer.id == refused_) throw Error(ErrorCode::kInvalidArgument, "not in the arena");
    offers_.insert(offer.id);
  }
  void Remove(std::uint64_t offer_id) override { offers_.erase(offer_id); }
  const std::multiset<std::uint64_t>& offers() const { return offers_; }

 private:
  const std::uint64_t refused_;
  std::multiset<std::uint64_t> offers_;
};

TEST(CarriedOfferTest, IsOnEveryEndUntilItGoes) {
  CountedEnd first;
  CountedEnd second;
  const std::array<OfferingEnd*, 2> ends = {&first, &second};
  const CarriedOffer stays({.id = 3, .tensors = {}}, ends);
  {
    const CarriedOffer goes({.id = 4, .tensors = {}}, ends);
    EXPECT_THAT(first.offers(), UnorderedElementsAre(3, 4));
    EXPECT_THAT(second.offers(), UnorderedElementsAre(3, 4));
  }
  EXPECT_THAT(first.offers(), UnorderedElementsAre(3));
  EXPECT_THAT(second.offers(), UnorderedElementsAre(3));
}

TEST(CarriedOfferTest, IsOnNoEndWhereOneRefusesIt) {
  CountedEnd first;
  CountedEnd refuses(4);
  CountedEnd third;
  const std::array<OfferingEnd*, 3> ends = {&first, &refuses, &third};
  EXPECT_THAT([&] { CarriedOffer({.id = 4, .tensors = {}}, ends); }, ThrowsMessage<Error>("not in the arena"));
  for (const CountedEnd* end : {&first, &refuses, &third}) EXPECT_THAT(end->offers(), IsEmpty());
}

TEST(CarriedOfferTest, IsTakenBackByTheOneItWasMovedTo) {
  CountedEnd end;
  const std::array<OfferingEnd*, 1> ends = {&end};
  std::optional<CarriedOffer> last;
  {
    CarriedOffer first({.id = 7, .tensors = {}}, ends);
    last.emplace(std::move(first));
  }
  EXPECT_THAT(end.offers(), UnorderedElementsAre(7));
  last.reset();
  EXPECT_THAT(end.offers(), IsEmpty());
}

}  // namespace
}  // namespace layercast
