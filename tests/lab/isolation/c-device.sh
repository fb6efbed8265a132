# A file in /dev is the guest's, and no case may leave one.
# US: none
# THEM: none
echo left >/dev/left
