from tuner.definitions.nearest import did_you_mean, nearest


def test_the_nearest_word_is_offered_where_one_is_near():
    assert nearest("hihg", ["low", "high"]) == "high"
    assert did_you_mean("hihg", ["low", "high"]) == " (did you mean 'high'?)"
    assert did_you_mean("colour", ["low", "high"]) == ""
