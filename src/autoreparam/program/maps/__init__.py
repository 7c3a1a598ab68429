"""Maps between noise, working coordinates and values: one file a kind of coupling."""

from autoreparam.program.maps.element import ElementMap, Point, SiteMap

__all__ = ["ElementMap", "Point", "SiteMap"]
