package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var clusterConnections = schema.GroupVersionKind{Group: "fleetcache.dev", Version: "v1alpha1", Kind: "ClusterConnection"}

// connections tells what a controller learns of the fleet, until its input ends: each object whenever it is told to reconcile it.
func connections(ctx context.Context, config *rest.Config, kind string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		}
		cancel()
	}()
	if kind == "metadata" {
		return metadataOfConnections(ctx, config)
	}
	ctrl.SetLogger(klog.Background())
	mgr, err := ctrl.NewManager(config, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(clusterConnections)
	err = ctrl.NewControllerManagedBy(mgr).For(object).Named("connections").Complete(&connectionsReconciler{mgr.GetClient()})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

type connectionsReconciler struct{ client.Client }

func (r *connectionsReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(clusterConnections)
	if err := r.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return ctrl.Result{}, err
	}
	connected := ""
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == "Connected" {
			connected = fmt.Sprint(c["status"])
		}
	}
	say("reconcile", map[string]any{"name": object.GetName(), "connected": connected})
	return ctrl.Result{}, nil
}

func metadataOfConnections(ctx context.Context, config *rest.Config) error {
	clients, err := newClients(config)
	if err != nil {
		return err
	}
	factory := metadatainformer.NewSharedInformerFactory(clients.metadata, 0)
	resource := schema.GroupVersionResource{Group: clusterConnections.Group, Version: clusterConnections.Version, Resource: "clusterconnections"}
	informer := factory.ForResource(resource).Informer()
	tell := func(object any) {
		if it, ok := object.(*metav1.PartialObjectMetadata); ok {
			say("metadata", map[string]any{"name": it.Name})
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, object any) { tell(object) }})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}
