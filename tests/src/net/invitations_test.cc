#include <gtest/gtest.h>

#include "src/net/token.h"

namespace layercast {
namespace {

TEST(Invitations, AdmitOnlyWhatWasHandedOut) {
  Invitations invitations;
  const Token mine = invitations.Invite();
  EXPECT_FALSE(invitations.Admits({}));
  EXPECT_FALSE(invitations.Admits(RandomToken()));
  EXPECT_TRUE(invitations.Admits(mine));
  EXPECT_FALSE(Invitations().Admits(mine));
}

TEST(Invitations, AreUsedUpByAFewConnections) {
  Invitations invitations;
  const Token one = invitations.Invite();
  const Token other = invitations.Invite();
  for (int i = 0; i < Invitations::kConnections; ++i) EXPECT_TRUE(invitations.Admits(one)) << i;
  EXPECT_FALSE(invitations.Admits(one));
  EXPECT_TRUE(invitations.Admits(other));
}

TEST(Invitations, OfWhoNeverComesMakeRoomForOthers) {
  Invitations invitations;
  const Token oldest = invitations.Invite();
  for (int i = 0; i < 4096; ++i) static_cast<void>(invitations.Invite());
  EXPECT_FALSE(invitations.Admits(oldest));
}

TEST(Invitations, ThatAreTakenBackAdmitNobodyNorKeepWhomTheyHaveAdmitted) {
  Invitations invitations;
  const Token one = invitations.Invite();
  const Token other = invitations.Invite();
  const auto leave = invitations.Admits(one);
  const auto others = invitations.Admits(other);
  ASSERT_TRUE(leave != nullptr && others != nullptr);
  EXPECT_FALSE(leave->taken_back());
  invitations.TakeBack(one);
  EXPECT_TRUE(leave->taken_back());
  EXPECT_FALSE(invitations.Admits(one));
  EXPECT_FALSE(others->taken_back());
  EXPECT_TRUE(invitations.Admits(other));
  invitations.TakeBack(RandomToken());  // which nobody has
}

}  // namespace
}  // namespace layercast
