package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// pollInterval is between two looks at the cache.
const pollInterval = 50 * time.Millisecond

// Labels of the objects: a parent has the role; a child the name of its parent, its place and the revision it was made from.
const (
	roleLabel     = "role"
	parentLabel   = "parent"
	placeLabel    = "place"
	revisionLabel = "revision"
)

// control runs a controller that gives each parent as many children as it asks for, each at its parent's revision. When its
// input ends it waits for its cache to be what the server says, tells what both have, and ends.
func control(ctx context.Context, config *rest.Config, namespace string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctrl.SetLogger(klog.Background())
	// By default built-in kinds are read as protobuf, which is live.
	config.ContentType = runtime.ContentTypeJSON
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	if err != nil {
		return err
	}
	family := &family{cached: manager.GetClient(), live: manager.GetAPIReader(), scheme: manager.GetScheme()}
	isParent := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[roleLabel] == "parent" })
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.ConfigMap{}, builder.WithPredicates(isParent)).
		Owns(&corev1.ConfigMap{}).
		WithEventFilter(predicate.Funcs{UpdateFunc: isForward}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(family)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	inputEnded := make(chan struct{})
	onEndOfInput(func() { close(inputEnded) })
	select {
	case err := <-ended:
		return fmt.Errorf("the manager ended: %w", err)
	case <-inputEnded:
	}
	if err := family.tell(ctx, namespace); err != nil {
		return err
	}
	cancel()
	return <-ended
}

// isForward tells of an object that went back in time.
func isForward(event event.UpdateEvent) bool {
	older, newer := versionOf(event.ObjectOld), versionOf(event.ObjectNew)
	if newer < older {
		fault("%s went back from %d to %d", event.ObjectNew.GetName(), older, newer)
	}
	return true
}

func versionOf(object client.Object) uint64 {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(err)
	}
	return version
}

// fault tells of what a correct server never shows.
func fault(format string, args ...any) {
	tell(map[string]any{"fault": fmt.Sprintf(format, args...)})
}

// family reconciles parents. Its children have generated names, so nothing but a list that has its own writes keeps it from
// making one twice.
type family struct {
	cached client.Client
	live   client.Reader
	scheme *runtime.Scheme
}

func (f *family) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	parent := &corev1.ConfigMap{}
	err := f.cached.Get(ctx, request.NamespacedName, parent)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	// Without a parent there is no uid, and no child is its.
	children, err := f.children(ctx, request.NamespacedName, parent.UID)
	if err != nil {
		return ctrl.Result{}, err
	}
	count, _ := strconv.Atoi(parent.Data["children"])
	for place := range count {
		child, found := children[strconv.Itoa(place)]
		if !found {
			if err := f.create(ctx, parent, place); err != nil {
				return ctrl.Result{}, err
			}
			continue
		}
		delete(children, strconv.Itoa(place))
		if child.Labels[revisionLabel] != parent.Data["revision"] {
			child.Labels[revisionLabel] = parent.Data["revision"]
			if err := f.cached.Update(ctx, &child); err != nil {
				return retryLater(err)
			}
			if err := f.readBack(ctx, &child); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	for _, child := range children {
		if err := client.IgnoreNotFound(f.cached.Delete(ctx, &child)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// children are those of this parent by their place; what was left behind by an earlier parent of the name goes.
func (f *family) children(ctx context.Context, parent types.NamespacedName, uid types.UID) (map[string]corev1.ConfigMap, error) {
	list := &corev1.ConfigMapList{}
	if err := f.live.List(ctx, list, client.InNamespace(parent.Namespace), client.MatchingLabels{parentLabel: parent.Name}); err != nil {
		return nil, err
	}
	children := map[string]corev1.ConfigMap{}
	for _, child := range list.Items {
		if owner := metav1.GetControllerOf(&child); owner == nil || owner.UID != uid {
			if err := client.IgnoreNotFound(f.cached.Delete(ctx, &child)); err != nil {
				return nil, err
			}
			continue
		}
		place := child.Labels[placeLabel]
		if other, found := children[place]; found {
			fault("%s and %s are both child %s of %s", other.Name, child.Name, place, parent.Name)
		}
		children[place] = child
	}
	return children, nil
}

func (f *family) create(ctx context.Context, parent *corev1.ConfigMap, place int) error {
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: parent.Namespace, GenerateName: parent.Name + "-",
		Labels: map[string]string{parentLabel: parent.Name, placeLabel: strconv.Itoa(place), revisionLabel: parent.Data["revision"]},
	}}
	if err := controllerutil.SetControllerReference(parent, child, f.scheme); err != nil {
		return err
	}
	if err := f.cached.Create(ctx, child); err != nil {
		return err
	}
	return f.readBack(ctx, child)
}

// readBack reads what was just written; somebody else may have written since, or deleted it.
func (f *family) readBack(ctx context.Context, written *corev1.ConfigMap) error {
	read := &corev1.ConfigMap{}
	err := f.live.Get(ctx, client.ObjectKeyFromObject(written), read)
	if apierrors.IsNotFound(err) {
		tell(map[string]any{"goneAfterWrite": written.Name})
		return nil
	}
	if err == nil && versionOf(read) < versionOf(written) {
		fault("%s was written as %s and read as %s", written.Name, written.ResourceVersion, read.ResourceVersion)
	}
	return err
}

// retryLater is for an object that somebody else changed or deleted since it was listed.
func retryLater(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: 1}, nil
	}
	return ctrl.Result{}, err
}

// tell waits until the cache has what a live list has, and tells both.
func (f *family) tell(ctx context.Context, namespace string) error {
	states := func(reader client.Reader) ([]string, error) {
		list := &corev1.ConfigMapList{}
		err := reader.List(ctx, list, client.InNamespace(namespace))
		states := []string{}
		for _, object := range list.Items {
			labels := object.Labels
			state := "parent " + object.Name + " at " + object.Data["revision"]
			if labels[roleLabel] != "parent" {
				state = fmt.Sprintf("child %s of %s at %s", labels[placeLabel], labels[parentLabel], labels[revisionLabel])
			}
			states = append(states, state)
		}
		slices.SortFunc(states, strings.Compare)
		return states, err
	}
	var cached, live []string
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		var inCache, atServer error
		cached, inCache = states(f.cached)
		live, atServer = states(f.live)
		return slices.Equal(cached, live), errors.Join(inCache, atServer)
	})
	tell(map[string]any{"cached": cached, "live": live})
	if err != nil {
		return fmt.Errorf("the cache never was what the server says: %w", err)
	}
	return nil
}
