from ablations.study.design import Design as Design
from ablations.study.reading import read_recipe as read_recipe
from ablations.study.reading import read_study as read_study
from ablations.study.recipe import Recipe as Recipe
from ablations.study.study import Study as Study
