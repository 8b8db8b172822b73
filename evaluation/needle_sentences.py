"""The sentences that are hidden. Every name in them is made up, so that no model knows the answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needle:
    """A sentence out of place, what asks for it, and what answers.

    reworded  asks the same without a word of the sentence, small words apart; "" where nobody wrote one
    """

    name: str
    sentence: str
    question: str
    answers: tuple[str, ...]
    reworded: str = ""


NEEDLES: tuple[Needle, ...] = (
    Needle(
        "bridge",
        "The toll bridge at Harrowmere closes for repairs on the ninth of October.",
        "On which day does the toll bridge at Harrowmere close for repairs?",
        (
            "ninth of october",
            "october 9",
            "9 october",
            "october 9th",
            "october ninth",
        ),
        "When will people be unable to cross the river because of building work?",
    ),
    Needle(
        "violin",
        "The old violin of Marta Quillen was sold to a dentist from Brackwater.",
        "To whom was the old violin of Marta Quillen sold?",
        ("dentist",),
        "Who bought the musical instrument?",
    ),
    Needle(
        "vault",
        "The combination of the Selby vault is 48-13-77.",
        "What is the combination of the Selby vault?",
        ("48-13-77",),
        "Which secret numbers open the safe?",
    ),
    Needle(
        "clock",
        "The clock in the tower of Wexcombe runs eleven minutes fast.",
        "How many minutes fast does the clock in the tower of Wexcombe run?",
        (
            "eleven",
            "11",
        ),
        "By how much is the time shown up there wrong?",
    ),
    Needle(
        "statue",
        "The statue in the square of Lindhavn was carved by Otto Verrel.",
        "Who carved the statue in the square of Lindhavn?",
        ("verrel",),
        "What is the name of the sculptor?",
    ),
    Needle(
        "train",
        "The night train to Corvallen departs from platform fourteen.",
        "From which platform does the night train to Corvallen depart?",
        (
            "fourteen",
            "14",
        ),
        "Where at the railway station must passengers wait for the late connection?",
    ),
    Needle(
        "gardener",
        "In her will Lady Penhallow left the silver compass to her gardener.",
        "To whom did Lady Penhallow leave the silver compass?",
        ("gardener",),
        "Who inherited a navigation instrument?",
    ),
    Needle(
        "island",
        "The survey found that the island of Norrey is made of green basalt.",
        "What is the island of Norrey made of?",
        ("basalt",),
        "Which kind of rock did geologists find out there in the sea?",
    ),
    Needle(
        "horse",
        "The horse that won the Tarrow cup in spring was called Nutmeg.",
        "What was the horse called that won the Tarrow cup?",
        ("nutmeg",),
        "Which animal came first in the race?",
    ),
    Needle(
        "painter",
        "The ceiling of the Ambrel theatre was painted by Signe Dahlqvist.",
        "Who painted the ceiling of the Ambrel theatre?",
        ("dahlqvist",),
        "Which artist decorated the playhouse?",
    ),
    Needle(
        "library",
        "The library of Quorn Abbey owns three hundred and twelve maps.",
        "How many maps does the library of Quorn Abbey own?",
        (
            "three hundred and twelve",
            "312",
        ),
        "How large is the monks' collection of charts?",
    ),
    Needle(
        "captain",
        "Captain Ilse Brandt keeps the ship's logbook in a biscuit tin.",
        "Where does Captain Ilse Brandt keep the ship's logbook?",
        ("biscuit tin",),
        "In what container is the sailor's diary stored?",
    ),
    Needle(
        "bakery",
        "The bakery in Fennel Street opens at twenty past five.",
        "At what time does the bakery in Fennel Street open?",
        (
            "twenty past five",
            "5:20",
        ),
        "When can one buy fresh bread early in the morning?",
    ),
    Needle(
        "bell",
        "The great bell of Osmunde was cast from the copper of sunken ships.",
        "From what was the great bell of Osmunde cast?",
        ("copper",),
        "Which metal did they melt to make what rings in the church?",
    ),
    Needle(
        "doctor",
        "Doctor Pell Arkwright treats headaches with a tea of willow bark.",
        "With what does Doctor Pell Arkwright treat headaches?",
        ("willow",),
        "What does the physician give against pain?",
    ),
    Needle(
        "password",
        "The password of the Larkspur reading club is marmalade.",
        "What is the password of the Larkspur reading club?",
        ("marmalade",),
        "Which secret must be said to join the people who meet about books?",
    ),
    Needle(
        "tunnel",
        "The tunnel under Mount Hesper is four miles long.",
        "How long is the tunnel under Mount Hesper?",
        (
            "four miles",
            "4 miles",
        ),
        "What distance does one travel beneath the peak?",
    ),
    Needle(
        "mayor",
        "The mayor of Dovrebeck resigned after a quarrel about a fountain.",
        "After a quarrel about what did the mayor of Dovrebeck resign?",
        ("fountain",),
        "Why did the head of the town give up office?",
    ),
    Needle(
        "lens",
        "The lens of the Calder telescope was ground in Utrecht.",
        "Where was the lens of the Calder telescope ground?",
        ("utrecht",),
        "In which city was the glass for looking at stars made?",
    ),
    Needle(
        "orchard",
        "The oldest tree in the Merrow orchard is a pear from Sicily.",
        "What is the oldest tree in the Merrow orchard?",
        ("pear",),
        "Which fruit has been growing there for the greatest number of years?",
    ),
)
