"""Nothing that is put into a page becomes markup, and every page is well-formed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages import read
from tuner.views.html import Html, element, page, table, text

ATTACKS = (
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!--",
    "-->",
    "<![CDATA[",
    "&lt;b&gt;",
    "&#60;script&#62;",
    "</td></table></body>",
    "<?php",
    "\x00<scr\x00ipt>",
    "\x1b[31m<b>",
    "\uff1cscript\uff1e",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_text_is_a_text_wherever_it_stands(attack):
    made = page(attack, "", [element("p", attack, title=attack), table([attack], [[attack, None]])])
    found = read(made)
    assert found.tags == {
        *("html", "head", "meta", "title", "style", "body", "p", "div", "table", "thead", "tbody"),
        *("tr", "th", "td"),
    }
    readable = attack.replace("\x1b[31m", "").replace("\x00", " ")
    assert found.text.count(readable) == 4
    [attributes] = [a for tag, a in found.elements if tag == "p"]
    assert attributes == {"title": readable}


@given(st.text(), st.text())
def test_any_text_comes_back_as_it_is_read(one, other):
    found = read(page("t", "", element("p", one, title=other)))
    assert found.tags == {"html", "head", "meta", "title", "style", "body", "p"}


def test_markup_is_kept_and_numbers_lists_and_nothing_are_told_apart():
    assert text(["a", [1, 2.5], None, Html("<br>"), element("b", "<")]) == "a12.5<br><b>&lt;</b>"


def test_attributes_are_spelt_for_html_and_none_is_left_out():
    made = element("text", text_anchor="end", class_="a", title=None, x=1.5)
    assert made == '<text text-anchor="end" class="a" x="1.5"></text>'


def test_a_page_says_that_it_fetches_nothing():
    found = read(page("t", "p{}", "body"))
    assert found.declarations == ["DOCTYPE html"]
    policies = [a["content"] for tag, a in found.elements if a.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
