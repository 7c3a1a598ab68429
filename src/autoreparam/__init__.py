"""Write Bayesian models the natural way; sample them in the parameterization that fits the data."""

from autoreparam import interop, paper, zoo
from autoreparam.many import sample_many
from autoreparam.prediction import predict
from autoreparam.program import families
from autoreparam.program.evaluate import log_joint
from autoreparam.program.families import Standardization, register
from autoreparam.program.handlers import reparameterize
from autoreparam.program.parameterization import Parameterization
from autoreparam.program.trace import Program, inspect
from autoreparam.results import plots
from autoreparam.results.diagnostics import efficiency, summary
from autoreparam.results.lam import parameterization
from autoreparam.results.report import report
from autoreparam.run.cache import compilation_cache
from autoreparam.run.settings import Adaptation
from autoreparam.sampling import learn, resume, sample

__all__ = [
    "Adaptation",
    "Parameterization",
    "Program",
    "Standardization",
    "compilation_cache",
    "efficiency",
    "families",
    "inspect",
    "interop",
    "learn",
    "log_joint",
    "paper",
    "parameterization",
    "plots",
    "predict",
    "register",
    "reparameterize",
    "report",
    "resume",
    "sample",
    "sample_many",
    "summary",
    "zoo",
]
__version__ = "0.1.0.dev0"
