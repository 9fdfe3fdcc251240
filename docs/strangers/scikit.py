"""Someone who knows scikit-learn: `gamma` of there, a check against the kernel, a search, a saved pipeline."""

import pickle
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernattn as ka
from kernattn.sklearn import FeatureClassifier, NystromFeatures


def main(folder):
    """Choose a classifier of digits, and hand it on."""
    x, y = load_digits(return_X_y=True)
    x, late, y, wanted = train_test_split(x[:600], y[:600], random_state=0)
    try:
        ka.kernels.Gaussian(gamma=0.01)
    except TypeError as error:
        said = str(error)
    assert "lengthscale = 1 / sqrt(2 gamma)" in said
    lengthscale = 1 / np.sqrt(2 * 0.01)
    kernel = ka.kernels.Gaussian(lengthscale)
    np.testing.assert_allclose(kernel(x[:9] / 16, x[:9] / 16), rbf_kernel(x[:9] / 16, gamma=0.01), rtol=1e-12)

    landmarks = NystromFeatures("gaussian", num_features=128, lengthscale=lengthscale, random_state=0).fit(x / 16)
    phi = landmarks.transform(late / 16)
    assert np.sqrt(np.mean((phi @ phi.T - kernel(late / 16, late / 16)) ** 2)) < 0.01

    model = make_pipeline(StandardScaler(), FeatureClassifier(num_features=64, lengthscale="scale", random_state=0))
    search = GridSearchCV(model, {"featureclassifier__num_features": [16, 128]}, cv=2).fit(x, y)
    assert search.best_params_ == {"featureclassifier__num_features": 128}
    assert search.score(late, wanted) > 0.9
    path = folder / "model.pkl"
    path.write_bytes(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(pickle.loads(path.read_bytes()).predict(late), search.predict(late))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
