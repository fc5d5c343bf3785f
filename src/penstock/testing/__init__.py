"""Tools for the tests of applications that use Penstock."""
