"""An invented world: 140 documents and 192 questions that they answer, 92 of them in two hops.

Nothing in it is true, so a model cannot know the answers and has to search. A result on it says how
well an agent searches here, not how it does on the datasets of the papers.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ascribe.envs.search_qa.data import Document, Question

STARTS = "Ab Bor Cal Dru Es Fal Gor Hes Il Jan Kar Lor Mel Nav Ol Pra Rud Sar Tam Ul Ver Wen Zel"
MIDDLES = "a e i o u ani ero ila oma una"
COUNTRY_ENDS, CITY_ENDS = "dia land mark nesia stan via", "burg don ford grad mouth ton ville"
RIVER_ENDS, NAME_ENDS = "bek na rin sha va", "dis las mon nek ric sen th wyn"
FIRST_NAMES = "Ada Bruno Clara Dario Elin Felix Greta Hugo Irma Jonas Karin Leo Mira Nils Olga"
TRADES = "bicycles clocks glass lamps maps pianos tea tents violins watches"
COUNTRIES, CITIES_OF_EACH, COMPANIES = 12, 4, 40


@dataclass(frozen=True)
class Demo:
    """The world as a search agent meets it."""

    documents: list[Document]
    questions: list[Question]


@lru_cache(maxsize=1)
def demo(seed: int = 0) -> Demo:
    """The world of a seed."""
    return _World(random.Random(seed)).demo()


@dataclass(frozen=True)
class _City:
    name: str
    country: str
    river: str
    people: int


@dataclass(frozen=True)
class _Company:
    name: str
    trade: str
    year: int
    seat: _City
    founder: str
    birthplace: _City


class _World:
    def __init__(self, draws: random.Random) -> None:
        self.draws = draws
        self.taken: set[str] = set()
        self.countries = [self.name(COUNTRY_ENDS) for _ in range(COUNTRIES)]
        self.cities = [
            _City(
                self.name(CITY_ENDS), country, self.name(RIVER_ENDS), draws.randint(20, 900) * 100
            )
            for country in self.countries
            for _ in range(CITIES_OF_EACH)
        ]
        self.capitals = {city.country: city for city in self.cities[::CITIES_OF_EACH]}
        self.companies = [self.company() for _ in range(COMPANIES)]

    def name(self, ends: str) -> str:
        """A name that nothing else bears."""
        while True:
            parts = (self.draws.choice(group.split()) for group in (STARTS, MIDDLES, ends))
            name = "".join(parts)
            if name not in self.taken:
                self.taken.add(name)
                return name

    def company(self) -> _Company:
        founder = f"{self.draws.choice(FIRST_NAMES.split())} {self.name(NAME_ENDS)}"
        return _Company(
            name=f"{self.name(NAME_ENDS)} Works",
            trade=self.draws.choice(TRADES.split()),
            year=self.draws.randint(1801, 1990),
            seat=self.draws.choice(self.cities),
            founder=founder,
            birthplace=self.draws.choice(self.cities),
        )

    def demo(self) -> Demo:
        documents = [
            {"id": str(number), "contents": f'"{title}"\n{text}'}
            for number, (title, text) in enumerate(self.pages())
        ]
        questions = [*self.one_hop(), *self.two_hops()]
        self.draws.shuffle(questions)
        return Demo(documents, questions)

    def pages(self) -> Iterator[tuple[str, str]]:
        for country, capital in self.capitals.items():
            yield country, f"{country} is a country. The capital of {country} is {capital.name}."
        for city in self.cities:
            yield (
                city.name,
                f"{city.name} is a city in {city.country}. The river {city.river} flows through "
                f"{city.name}. It has {city.people} inhabitants.",
            )
        for company in self.companies:
            yield (
                company.name,
                f"{company.name} is a company that makes {company.trade}. It was founded in "
                f"{company.year} by {company.founder}. Its seat is in {company.seat.name}.",
            )
            yield (
                company.founder,
                f"{company.founder} was a maker of {company.trade}, born in "
                f"{company.birthplace.name}.",
            )

    def one_hop(self) -> Iterator[Question]:
        for country, capital in self.capitals.items():
            yield _question(f"What is the capital of {country}?", capital.name, country)
        for city in self.cities:
            yield _question(f"Which river flows through {city.name}?", city.river, city.name)
        for company in self.companies:
            yield _question(f"Who founded {company.name}?", company.founder, company.name)

    def two_hops(self) -> Iterator[Question]:
        for country, capital in self.capitals.items():
            wording = f"Which river flows through the capital of {country}?"
            yield _question(wording, capital.river, country, capital.name)
        for company in self.companies:
            born, seat = company.birthplace, company.seat
            wording = f"In which city was the founder of {company.name} born?"
            yield _question(wording, born.name, company.name, company.founder)
            wording = f"In which country is the seat of {company.name}?"
            yield _question(wording, seat.country, company.name, seat.name)


def _question(text: str, answer: str, *searches: str) -> Question:
    family = "one hop" if len(searches) == 1 else "two hops"
    return Question(text, (answer,), family, searches)
