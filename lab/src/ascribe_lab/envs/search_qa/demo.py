"""An invented world: 140 documents and 192 questions that they answer, 92 of them in two hops.

Nothing in it is true, so a model cannot know the answers and has to search. A result on it says how
well an agent searches here, not how it does on the datasets of the papers.
"""

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ascribe_lab.envs.search_qa.data import Document, Question

STARTS = "Ab Bor Cal Dru Es Fal Gor Hes Il Jan Kar Lor Mel Nav Ol Pra Rud Sar Tam Ul Ver Wen Zel"
MIDDLES = "a e i o u ani ero ila oma una"
COUNTRY_ENDS, CITY_ENDS = "dia land mark nesia stan via", "burg don ford grad mouth ton ville"
RIVER_ENDS, NAME_ENDS = "bek na rin sha va", "dis las mon nek ric sen th wyn"
FIRST_NAMES = "Ada Bruno Clara Dario Elin Felix Greta Hugo Irma Jonas Karin Leo Mira Nils Olga"
TRADES = "bicycles clocks glass lamps maps pianos tea tents violins watches"
COUNTRIES, CITIES_OF_EACH, COMPANIES = 12, 4, 40


class Demo(NamedTuple):
    """The documents and the questions."""

    documents: list[Document]
    questions: list[Question]


class _City(NamedTuple):
    name: str
    country: str
    river: str
    people: int


class _Company(NamedTuple):
    founder: str
    name: str
    trade: str
    year: int
    seat: _City
    birthplace: _City


@lru_cache(maxsize=1)
def demo(seed: int = 0) -> Demo:
    """The world of a seed."""
    draws = random.Random(seed)
    taken: set[str] = set()

    def name(ends: str) -> str:
        """A name that nothing else bears."""
        while True:
            parts = (draws.choice(group.split()) for group in (STARTS, MIDDLES, ends))
            drawn = "".join(parts)
            if drawn not in taken:
                taken.add(drawn)
                return drawn

    countries = [name(COUNTRY_ENDS) for _ in range(COUNTRIES)]
    cities = [
        _City(name(CITY_ENDS), country, name(RIVER_ENDS), draws.randint(20, 900) * 100)
        for country in countries
        for _ in range(CITIES_OF_EACH)
    ]
    companies = [
        _Company(
            founder=f"{draws.choice(FIRST_NAMES.split())} {name(NAME_ENDS)}",
            name=f"{name(NAME_ENDS)} Works",
            trade=draws.choice(TRADES.split()),
            year=draws.randint(1801, 1990),
            seat=draws.choice(cities),
            birthplace=draws.choice(cities),
        )
        for _ in range(COMPANIES)
    ]
    capitals = cities[::CITIES_OF_EACH]
    documents = [
        {"id": str(number), "contents": f'"{title}"\n{text}'}
        for number, (title, text) in enumerate(_pages(capitals, cities, companies))
    ]
    questions = list(_questions(capitals, cities, companies))
    draws.shuffle(questions)
    return Demo(documents, questions)


def _pages(
    capitals: list[_City], cities: list[_City], companies: list[_Company]
) -> Iterator[tuple[str, str]]:
    """Titles and texts."""
    for capital, country, *_ in capitals:
        yield country, f"{country} is a country. The capital of {country} is {capital}."
    for city, country, river, people in cities:
        yield (
            city,
            f"{city} is a city in {country}. The river {river} flows through {city}. It has "
            f"{people} inhabitants.",
        )
    for founder, company, trade, year, seat, birthplace in companies:
        yield (
            company,
            f"{company} is a company that makes {trade}. It was founded in {year} by {founder}. "
            f"Its seat is in {seat.name}.",
        )
        yield founder, f"{founder} was a maker of {trade}, born in {birthplace.name}."


def _questions(
    capitals: list[_City], cities: list[_City], companies: list[_Company]
) -> Iterator[Question]:
    """Questions of one hop, then those of two."""

    def question(text: str, answer: str, *searches: str) -> Question:
        family = "one hop" if len(searches) == 1 else "two hops"
        return Question(text, (answer,), family, searches)

    for capital, country, *_ in capitals:
        yield question(f"What is the capital of {country}?", capital, country)
    for city, _, river, _ in cities:
        yield question(f"Which river flows through {city}?", river, city)
    for founder, company, *_ in companies:
        yield question(f"Who founded {company}?", founder, company)
    for capital, country, river, _ in capitals:
        wording = f"Which river flows through the capital of {country}?"
        yield question(wording, river, country, capital)
    for founder, company, _, _, seat, birthplace in companies:
        wording = f"In which city was the founder of {company} born?"
        yield question(wording, birthplace.name, company, founder)
        wording = f"In which country is the seat of {company}?"
        yield question(wording, seat.country, company, seat.name)
