"""The rules of the stand-in refund desk: a question in, an answer with its topic and confidence out.

Keywords find the topic; days, weekdays and amounts are read out of the question; rules fill in a sentence. It has
the defects that an evaluation should find:

- It does not know that final-sale items are excluded from returns, refunds and exchanges.
- It counts calendar days where the shop promises business days.
- Its text about lost gift cards still carries an internal article number.
- It takes every question that mentions water for one about water damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "ten": 10, "twelve": 12}
HOURS = {"hour": 1, "day": 24, "week": 7 * 24, "month": 30 * 24, "year": 365 * 24}
_AGE = re.compile(rf"\b(\d{{1,4}}|{'|'.join(NUMBERS)}) ({'|'.join(HOURS)})s?\b")
_EUROS = re.compile(r"\b(\d{1,6}(?:\.\d{1,2})?) euros?\b")
_ORDER_NUMBER = re.compile(r"\border (?:number |no\. )?\d{4,}\b")

ELECTRONICS = ("camera", "headphone", "laptop", "phone", "tablet", "speaker", "monitor")
ABROAD = ("switzerland", "norway", "united states", "canada", "japan", "abroad", "overseas")


@dataclass(frozen=True)
class Question:
    """A customer's words, and what can be read out of them."""

    text: str

    @cached_property
    def lower(self) -> str:
        """The text as rules see it: small letters, plain apostrophes."""
        return self.text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")

    def says(self, *phrases: str) -> int:
        """Return how many of the phrases begin at a word of the question."""
        words = " " + re.sub(r"[^a-z0-9']+", " ", self.lower)
        return sum(f" {phrase}" in words for phrase in phrases)

    @property
    def hours(self) -> int | None:
        """Return the hours since the purchase, as the customer says."""
        if match := _AGE.search(self.lower):
            number = NUMBERS.get(match[1]) or int(match[1])
            return number * HOURS[match[2]]
        return 24 if self.says("yesterday") else None

    @property
    def euros(self) -> float | None:
        """The first amount, in euros."""
        match = _EUROS.search(self.lower)
        return float(match[1]) if match else None

    @property
    def weekday(self) -> int | None:
        """The first weekday named, 0 for Monday."""
        days = re.findall("|".join(WEEKDAYS), self.text)
        return WEEKDAYS.index(days[0]) if days else None

    def older_than(self, days: int) -> bool:
        """Return whether it was more than so many days ago; no time counts as recent."""
        return self.hours is not None and self.hours > days * 24


class OrderSystemError(Exception):
    """A question that only the order system could answer."""


def _day_after(weekday: int, days: int) -> str:
    return WEEKDAYS[(weekday + days) % 7]  # the defect: weekends are no business days


def _return(question: Question) -> str:
    if question.says("software", "licence") and question.says("opened", "activated"):
        return "I am sorry, opened software cannot be returned."
    if question.says("engraved", "personalised", "monogram", "made to measure"):
        return "I am sorry, personalised items cannot be returned."
    if question.says("underwear", "swimsuit", "earrings") and question.says("worn", "tried", "opened", "without"):
        return "I am sorry, for reasons of hygiene opened articles of this kind cannot be returned."
    window = 14 if question.says(*ELECTRONICS) else 30
    if question.older_than(window):
        return f"I am sorry, it cannot be returned any more: the time limit was {window} days from delivery."
    if question.says("receipt", "proof of purchase"):
        return "You need no receipt, your order number is enough."
    if question.says("label", "who pays", "cost", "free"):
        return "The return label is free of charge: print it from your account."
    return f"Gladly, it can be returned within {window} days from delivery, unused and in its packaging."


def _refund(question: Question) -> str:
    if question.weekday is not None:
        return f"The money will be on its way to you on {_day_after(question.weekday, 5)} at the latest."
    if question.euros is not None:
        fee = 0.15 if question.says("opened") and question.says(*ELECTRONICS) else 0.0
        note = " after a fee of 15 % for opened electronics" if fee else ""
        return f"You will get {question.euros * (1 - fee):.2f} euros back{note}."
    if question.says("express"):
        return "We refund the standard shipping cost; the surcharge for express is not refunded."
    if question.says("other card", "another card", "other account", "cash", "different card"):
        return "A refund always goes to the original payment method."
    return "You will get your money within 5 business days of the item reaching us, to the original payment method."


def _shipping(question: Question) -> str:
    express = bool(question.says("express"))
    abroad = bool(question.says(*ABROAD))
    days = 1 if express else 10 if abroad else 3
    if question.says("po box"):
        return "I am sorry, we do not deliver to a PO box."
    if question.weekday is not None:
        return f"Your parcel will arrive on {_day_after(question.weekday, days)}."
    if question.euros is not None and not express and not abroad:
        if question.euros >= 50:
            return "Shipping is free of charge from 50 euros on, so you pay nothing for it."
        return "Standard shipping is 4.90 euros below an order value of 50 euros."
    if question.says("cost", "much", "charge", "fee", "price"):
        price = "9.90" if express else "14.90" if abroad else "4.90"
        return f"That is {price} euros for shipping."
    return f"Your parcel will take {days} business day{'s' if days > 1 else ''}."


def _cancel(question: Question) -> str:
    if question.says("shipped", "on its way", "dispatched", "left your warehouse", "with the courier"):
        return "I am sorry, what has left our warehouse cannot be cancelled; you may return it within 30 days."
    if question.says("pre order", "preorder"):
        return "Gladly, a pre-order can be cancelled at any time before it is dispatched."
    if question.hours is not None and question.hours > 2:
        return "I am sorry, it cannot be cancelled any more: the time limit was 2 hours from ordering."
    return "Gladly, an order can be cancelled within 2 hours: press the button in your account."


def _warranty(question: Question) -> str:
    if question.says("dropped", "fell", "water", "rain", "washing machine", "spilled", "bath"):
        return "I am sorry, accidents and water are not covered by the warranty."
    months = 12 if question.says("battery", "batteries") else 24
    if question.older_than(months * 30 + 10):
        return f"I am sorry, it is not covered any more: the warranty is {months} months."
    return f"It is covered: the warranty is {months} months, and the repair is free."


def _damaged(question: Question) -> str:
    if question.older_than(7):
        return "I am sorry, damage must be reported within 7 days from delivery."
    return "I am sorry about that! Send us a photo within 7 days, and choose a replacement or a full refund."


def _gift_card(question: Question) -> str:
    if question.says("lost", "stolen", "deleted", "never received"):
        return "We can block it and send a new one to the buyer's address, see [KB-1142]."  # the defect: [KB-1142]
    if question.says("refund", "return", "money back", "cash"):
        return "I am sorry, a gift card is never paid out and cannot be refunded."
    if question.says("expire", "valid", "how long", "still use", "old"):
        old = question.older_than(36 * 30 + 15)
        return "I am sorry, it has expired: it is valid for 36 months." if old else "It is valid for 36 months."
    if question.says("balance", "left on"):
        return "You can see the balance in your account, under Gift cards."
    return "Enter its code at the checkout: up to 3 gift cards in one order."


def _exchange(question: Question) -> str:
    if question.older_than(30):
        return "I am sorry, it cannot be exchanged any more: the time limit was 30 days from delivery."
    if question.says("price", "expensive", "cheaper", "difference"):
        return "You pay the difference in price, or get it back."
    return "Gladly, it can be exchanged free of charge within 30 days from delivery."


def _payment(question: Question) -> str:
    if question.says("twice", "double", "two charges"):
        return "One of the two is a reservation, which your bank releases within 5 business days."
    if question.says("instalment"):
        if question.euros is not None and question.euros < 100:
            return "I am sorry, instalments are offered from 100 euros on."
        return "Gladly, you can pay in 3 instalments from 100 euros on."
    if question.says("invoice"):
        return "The invoice is in your account, under Orders."
    return "We take credit cards, PayPal and bank transfers."


def _order_status(question: Question) -> str:
    if _ORDER_NUMBER.search(question.lower):
        raise OrderSystemError
    return "You will find the tracking link in the e-mail that confirmed the dispatch."


@dataclass(frozen=True)
class Topic:
    """A topic of questions: its keywords, and the function that answers."""

    intent: str
    words: tuple[str, ...]
    answer: Callable[[Question], str]


TOPICS = (  # the special before the general: of equally likely topics the first one wins
    Topic("gift_card", ("gift card", "voucher", "gift certificate"), _gift_card),
    Topic("cancel", ("cancel", "stop my order", "ordered by mistake", "undo my order"), _cancel),
    Topic("damaged", ("damaged", "broken", "cracked", "dented", "smashed", "torn", "in pieces", "scratched"), _damaged),
    Topic("warranty", ("warranty", "guarantee", "stopped working", "repair", "died", "water"), _warranty),
    Topic("exchange", ("exchange", "swap", "other size", "bigger size", "smaller size", "another colour"), _exchange),
    Topic("order_status", ("where is", "track", "status of"), _order_status),
    Topic("payment", ("pay", "paypal", "invoice", "instalment", "charged", "credit card"), _payment),
    Topic("refund", ("refund", "money", "reimburse", "get back"), _refund),
    Topic("return", ("return", "send back", "send it back", "send them back", "take back", "take it back"), _return),
    Topic("shipping", ("ship", "deliver", "arrive", "postage", "parcel", "express"), _shipping),
)


def answer(text: str) -> dict[str, Any]:
    """Answer a question, as `POST /ask` gives it (without its metadata); raises OrderSystemError.

    The confidence, 0 to 1, is the fraction of keywords found that are of the topic chosen.
    """
    question = Question(text)
    hits = {topic: question.says(*topic.words) for topic in TOPICS}
    topic = max(TOPICS, key=lambda candidate: hits[candidate])
    if hits[topic]:
        intent, reply = topic.intent, topic.answer(question)
        confidence = 0.25 + 0.7 * hits[topic] / sum(hits.values())
    else:
        intent, confidence = "other", 0.2
        reply = "I only know about orders, shipping, returns and refunds, so I will ask a colleague to write to you."
    tokens = len(text.split()) + len(reply.split())
    return {"answer": reply, "intent": intent, "confidence": round(confidence, 2), "usage": {"total_tokens": tokens}}
