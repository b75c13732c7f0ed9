"""WebShop: buy what an instruction describes, in a shop of text pages."""

from ascribe_lab.envs.webshop.game import WebShop

__all__ = ["WebShop"]
