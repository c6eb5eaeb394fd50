// The definitions of Cluster API, as its release has them. Nothing here is compiled: only the module's files are read.
module fleetcache.dev/e2e/crds

go 1.26.0

require sigs.k8s.io/cluster-api v1.14.2
