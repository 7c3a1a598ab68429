"""Maps between noise, working coordinates and values: one file per kind of coupling."""

from autoreparam.program.maps.correlated import CorrelatedMap
from autoreparam.program.maps.element import ElementMap, Point, SiteMap, SteadyMap
from autoreparam.program.maps.sequence import SequenceMap

__all__ = ["CorrelatedMap", "ElementMap", "Point", "SequenceMap", "SiteMap", "SteadyMap"]
