# After guests that ended there is another.
# US: none
# THEM: none
. /lab/isolation/b-pristine.sh
